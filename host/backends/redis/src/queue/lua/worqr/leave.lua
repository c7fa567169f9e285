-- Removes a worker: its tasks return to the front, and nothing remains that the package could take
-- for a dead worker. ARGV: the worker, the queue. Returns how many tasks returned.
local w, q = ARGV[1], ARGV[2]
local back = return_all(q, call('HKEYS', held(w)))
forget(w)
for _, other in ipairs(call('SMEMBERS', own .. 'workers')) do
  if is_alive(other) and call('SISMEMBER', p .. ':workingQueues:' .. other, q) == 1 then return back end
end
-- Only dispatchers look for released tasks, and none is left.
return back + return_all(q, call('ZRANGE', released(q), 0, -1))
