-- Counts the waiting messages of tenants. ARGV: the maximum that is counted, and the tenants. Returns
-- 1 if there may be more that are not counted yet, else 0; then for each tenant the count, and how
-- long its first message has waited in ms, -1 without one. Returns nothing if there are no rules.
local now = to_ms(time_us())
promote(q, now)
local s = read_sharing()
if not s then return {} end
local is_complete = catch_up(s, now)
local answer, most = { is_complete and 0 or 1 }, tonumber(ARGV[1])
for at = 2, #ARGV do
  local count, oldest = 0, -1
  for priority = 1, 5 do
    local prefix, looks = lane(priority, ARGV[at]), { left = 100 }
    local first = first_of(lanes, prefix, looks)
    if first then
      count = count + call('ZLEXCOUNT', lanes, '[' .. prefix, beyond(prefix))
      local since = call('ZSCORE', of('since', priority), first) or known_since(first)
      oldest = math.max(oldest, now - tonumber(since))
    end
  end
  answer[#answer + 1], answer[#answer + 2] = math.min(count, most), oldest
end
return answer
