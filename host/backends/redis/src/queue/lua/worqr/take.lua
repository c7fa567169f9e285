-- Hands out tasks. ARGV: queue, worker, how many bytes the tasks may have, of which the first may
-- have more, how many a task may have at most, and a new process id for each that is wanted. Answers
-- with: -2 if the worker has failed; ms until a released task is back, -1 for never, where there is
-- nothing; or 0, 1 if it stopped early, and for each process its id, task, and which attempt at the
-- task it is. In the place of a task that is too long is its length.
local q, w = ARGV[1], ARGV[2]
if call('SISMEMBER', p .. ':workingQueues:' .. w, q) == 0 or call('EXISTS', timer(w)) == 0 then
  return { -2 }
end
local now = string.format('%.0f', time_ms())
for _, id in ipairs(call('ZRANGEBYSCORE', released(q), '-inf', now, 'LIMIT', 0, 1000)) do
  call('ZREM', released(q), id)
  give_back(q, id)
end
local answer, bytes = { 0 }, 0
local room, most = tonumber(ARGV[3]), tonumber(ARGV[4])
for at = 5, #ARGV do
  local id = ARGV[at]
  local task = call('RPOPLPUSH', queue_key(q), process_key(id))
  if not task then break end
  bytes = bytes + #task
  if bytes > room and #answer > 1 then
    give_back(q, id)
    answer[1] = 1
    break
  end
  call('SADD', working(q), id)
  local last = call('HGET', counts(q), redis.sha1hex(task)) or '0'
  local attempt = string.format('%.0f', tonumber(last) + 1)
  call('HSET', held(w), id, attempt)
  answer[#answer + 1] = id
  answer[#answer + 1] = #task > most and #task or task
  answer[#answer + 1] = attempt
end
if #answer == 1 then
  local first = call('ZRANGE', released(q), 0, 0, 'WITHSCORES')
  answer[1] = first[2] and math.max(0, tonumber(first[2]) - tonumber(now)) or -1
end
return answer
