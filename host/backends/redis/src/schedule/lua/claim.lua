-- Claims jobs. ARGV: the token, the end of the claim, the current time, then for each job its id
-- and its due time as it was read. Returns 1 for each, or 0 if the job has changed or is claimed by
-- another process. A repeated call gets the same answer.
local mine, now = ARGV[2] .. ' ' .. ARGV[1], ARGV[3]
local answer = {}
for at = 4, #ARGV, 2 do
  local id, when = ARGV[at], ARGV[at + 1]
  local same = call('HGET', whens, id) == when
  if same and (is_free(id, now) or call('HGET', claims, id) == mine) then
    call('HSET', claims, id, mine)
    answer[#answer + 1] = 1
  else
    answer[#answer + 1] = 0
  end
end
return answer
