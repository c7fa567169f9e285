-- Returns how many messages wait, are in flight and are delayed, and the age in ms of the oldest
-- that is not in flight, -1 without one. Reads at most `most` of those that are not sorted by age.
local most = 1000
local now = to_ms(time_us())
local upto, after = num(now), '(' .. num(now)
local held = 0
for _, due in ipairs(call('HVALS', q.due)) do
  if tonumber(due) > now then held = held + 1 end
end
local waiting = call('ZCARD', q.wait) + call('ZCARD', q.behind) - held
  + call('ZCOUNT', q.leases, '-inf', upto) + call('ZCOUNT', q.delayed, '-inf', upto)
local oldest
local function look(ids)
  for _, id in ipairs(ids) do
    local sent = string.sub(id, -25, -10)
    if not oldest or sent < oldest then oldest = sent end
  end
end
look(call('ZRANGE', q.wait, 0, 0))
look(call('ZRANGEBYSCORE', q.leases, '-inf', upto, 'LIMIT', 0, most))
look(call('ZRANGE', q.delayed, 0, most - 1))
look(call('ZRANGE', q.behind, 0, most - 1))
local age = oldest and math.max(0, now - to_ms(tonumber(oldest))) or -1
return {
  waiting, call('ZCOUNT', q.leases, after, '+inf'),
  call('ZCOUNT', q.delayed, after, '+inf') + held, age,
}
