-- Lets a worker receive that was entered before. ARGV: the worker. Returns 0 if it was given up
-- meanwhile, which may happen before a late call comes.
if call('EXISTS', given_up(q, ARGV[1])) == 1 then return 0 end
call('SADD', q.workers, ARGV[1])
return 1
