-- Adds a job. ARGV: the call's id, the job's id, its due time, the job. Returns 1, or 0 if there is
-- already one of the id.
local this, id, when, job = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if call('EXISTS', did(this)) == 1 then return 1 end
if call('HSETNX', jobs, id, job) == 0 then return 0 end
call('HSET', whens, id, when)
call('ZADD', order, 0, place(when, id))
call('SET', did(this), '1', 'EX', KEPT_S)
return 1
