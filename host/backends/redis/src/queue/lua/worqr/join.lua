-- Registers a worker of a queue. ARGV: the worker, the queue.
local w, q = ARGV[1], ARGV[2]
call('SADD', own .. 'workers', w)
call('SADD', p .. ':workers', w)
call('SADD', p .. ':expiringWorkers', w)
give_life(w)
call('SADD', p .. ':workingQueues:' .. w, q)
return 1
