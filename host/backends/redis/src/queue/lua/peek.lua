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
fit(q, ids, tonumber(ARGV[2]))
return describe(q, ids, tonumber(ARGV[3]), 0)
