-- Ends processes. ARGV: the queue, the worker, its dead-letter queue or ''; then for each process
-- the id, the outcome (d: done, r: release, b: bury), the delay in ms, and the MD5 of the task.
-- Returns a number for each: 0 done, 1 the process no longer belongs to this worker.
local q, w, grave = ARGV[1], ARGV[2], ARGV[3]
local answers = {}
for at = 4, #ARGV, 4 do
  local id, what, delay = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local attempt = call('HGET', held(w), id)
  local task = attempt and call('LINDEX', process_key(id), 0)
  call('HDEL', held(w), id)
  if not task then
    answers[#answers + 1] = 1
  elseif what == 'r' and delay > 0 then
    failed(q, task, attempt)
    call('ZADD', released(q), string.format('%.0f', time_ms() + delay), id)
    answers[#answers + 1] = 0
  elseif what == 'r' then
    failed(q, task, attempt)
    give_back(q, id)
    wake(q, 1)
    answers[#answers + 1] = 0
  else
    if what == 'b' then
      call('LPUSH', queue_key(grave), task)
      wake(grave, 1)
    end
    call('DEL', p .. ':uniqueTasks:' .. ARGV[at + 3], process_key(id))
    call('SREM', working(q), id)
    call('HDEL', counts(q), redis.sha1hex(task))
    call('PUBLISH', p .. '_' .. q .. '_done', cjson.encode({ workerId = w, task = task }))
    answers[#answers + 1] = 0
  end
end
return answers
