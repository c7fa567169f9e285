-- Removes messages that are not in flight: first those that can be received, then the delayed ones,
-- then those behind heads that are in flight. ARGV: the maximum number. Returns how many were
-- removed, and 1 if there are more.
local most = tonumber(ARGV[1])
local now = to_ms(time_us())
promote(q, now)
local removed = 0

local function remove(id)
  for _, key in ipairs({ q.body, q.attributes, q.delivery, q.group, q.due }) do call('HDEL', key, id) end
  removed = removed + 1
end

leave_lanes(call('ZRANGE', q.wait, 0, most - 1))
for _, key in ipairs({ q.wait, q.delayed }) do
  for _, id in ipairs(call('ZRANGE', key, 0, most - removed - 1)) do
    if removed < most then
      call('ZREM', key, id)
      local group = call('HGET', q.group, id)
      remove(id)
      if group then advance(q, group, id, now) end
    end
  end
end
if call('ZCARD', q.wait) + call('ZCARD', q.delayed) == 0 and removed < most then
  for _, member in ipairs(call('ZRANGE', q.behind, 0, most - removed - 1)) do
    call('ZREM', q.behind, member)
    remove(string.sub(member, -25))
  end
end
local left = call('ZCARD', q.wait) + call('ZCARD', q.delayed) + call('ZCARD', q.behind)
return { removed, left > 0 and 1 or 0 }
