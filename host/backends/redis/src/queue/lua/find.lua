-- Returns a waiting message by its id, without receiving it. ARGV: the id, and the maximum bytes of
-- a body. Returns as `claim`.
local id = ARGV[1]
local now = to_ms(time_us())
promote(q, now)
local waits = call('ZSCORE', q.wait, id)
local group = not waits and call('HGET', q.group, id)
if group then
  waits = call('ZSCORE', q.behind, behind_prefix(group) .. id)
    and tonumber(call('HGET', q.due, id) or '0') <= now
end
return describe(q, waits and { id } or {}, tonumber(ARGV[2]), 0)
