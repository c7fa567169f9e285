-- Hands out tasks. ARGV: the queue, the worker, the maximum bytes of the tasks, which the first may
-- exceed, the maximum bytes of a task, and a new process id for each wanted task. Returns -2 if the
-- worker has failed. If there is no task, returns the ms until a released task is back, -1 for
-- never. Otherwise returns 0, or 1 if it stopped early, and for each process its id, its task, and
-- the number of the attempt at the task. A task that is too long is replaced by its length.
local q, w = ARGV[1], ARGV[2]
if call('SISMEMBER', p .. ':workingQueues:' .. w, q) == 0 or not is_alive(w) then
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
