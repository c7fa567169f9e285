-- Looks at what could be received, in its order, then at what waits behind the heads of groups.
-- ARGV: how many at most, how many bytes they may have, and how many a body may have. Answers as
-- `claim`, and changes nothing.
local most = tonumber(ARGV[1])
local now = num(to_ms(time_us()))
local ids = call('ZRANGE', q.wait, 0, most - 1)
for _, key in ipairs({ q.leases, q.delayed }) do
  for _, id in ipairs(call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, most)) do ids[#ids + 1] = id end
end
table.sort(ids)
if #ids < most then
  local behind = call('ZRANGE', q.behind, 0, most - 1)
  for at, member in ipairs(behind) do behind[at] = string.sub(member, -25) end
  table.sort(behind)
  for _, id in ipairs(behind) do ids[#ids + 1] = id end
end
for at = #ids, most + 1, -1 do ids[at] = nil end
local answer = { 0 }
local count = fit(q, ids, tonumber(ARGV[2]))
for at = #ids, count + 1, -1 do ids[at] = nil end
local bodies = bodies_of(q, ids, tonumber(ARGV[3]))
for at = 1, count do
  local id = ids[at]
  local d = read_delivery(call('HGET', q.delivery, id))
  if not (d and is_cancelled(d)) then
    answer[#answer + 1] = id
    answer[#answer + 1] = bodies[at]
    answer[#answer + 1] = attributes_of(id, call('HGET', q.attributes, id))
    answer[#answer + 1] = call('HGET', q.group, id) or ''
    answer[#answer + 1] = d and d.count or '0'
    answer[#answer + 1] = d and d.first or ''
  end
end
return answer
