-- Returns the messages that could be received, in their order, then those behind the heads of
-- groups, and changes nothing. ARGV: the maximum number of messages, the maximum of their bytes,
-- and the maximum bytes of a body. Returns as `claim`.
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
