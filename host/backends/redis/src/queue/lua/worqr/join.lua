-- Begins a worker of a queue. ARGV: worker, queue.
local w, q = ARGV[1], ARGV[2]
call('SADD', own .. 'workers', w)
call('SADD', p .. ':workers', w)
call('SADD', p .. ':expiringWorkers', w)
call('SET', timer(w), 'RUN', 'EX', 3)
call('SADD', p .. ':workingQueues:' .. w, q)
return 1
