-- Claims jobs. ARGV: the token, until when, the time now, then for each job its id and when it was
-- due when it was read. Answers for each with 1, or 0 if it is not as it was or is another's. A call
-- that is made again is answered as it was.
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
