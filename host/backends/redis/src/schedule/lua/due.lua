-- Returns the soonest jobs. ARGV: the place after which they begin, or ''; the time at which they
-- are too late; the maximum number of jobs, and the maximum of their bytes, which one alone may
-- exceed. Returns 1 if there are more, else 0, and for each job its place, the job or nil if it is
-- missing, and its claim or ''.
local after, late, most, bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local from = after == '' and '-' or '(' .. after
local found = call('ZRANGEBYLEX', order, from, '(' .. late, 'LIMIT', 0, most + 1)
local answer, sum = { 0 }, 0
for at, where in ipairs(found) do
  local id = string.sub(where, 17)
  local job = call('HGET', jobs, id)
  sum = sum + (job and #job or 0)
  if at > most or (#answer > 1 and sum > bytes) then
    answer[1] = 1
    break
  end
  answer[#answer + 1] = where
  answer[#answer + 1] = job
  answer[#answer + 1] = call('HGET', claims, id) or ''
end
return answer
