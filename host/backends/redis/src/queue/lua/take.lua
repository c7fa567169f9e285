-- Hands out chosen messages, as far as they can be received. ARGV: the worker, the number of this
-- claim, the visibility timeout in ms, the maximum bytes of the messages, the maximum bytes of a
-- body, and the ids. Returns as `claim`.
local worker, claim = ARGV[1], ARGV[2]
if call('SISMEMBER', q.workers, worker) == 0 then
  return { -2 }
end
if call('ZSCORE', void(q, worker), claim) then
  return { -1 }
end
local now = to_ms(time_us())
promote(q, now)
local ids = {}
for at = 6, #ARGV do
  if call('ZREM', q.wait, ARGV[at]) == 1 then ids[#ids + 1] = ARGV[at] end
end
if #ids == 0 then
  return { -1 }
end
leave_lanes(ids)
for _, id in ipairs(fit(q, ids, tonumber(ARGV[4]))) do let_wait(q, id, now) end
return hand_out(q, ids, { worker = worker, claim = claim, visibility = ARGV[3], most = tonumber(ARGV[5]), more = 0 }, now)
