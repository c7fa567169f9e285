-- Removes a job. ARGV: the call's id, the job's id, the current time. Returns 1, 0 if there is no
-- such job, or 2 if it is being sent.
local this, id, now = ARGV[1], ARGV[2], ARGV[3]
if call('EXISTS', did(this)) == 1 then return 1 end
local when = call('HGET', whens, id)
if not when then return 0 end
if not is_free(id, now) then return 2 end
call('ZREM', order, place(when, id))
call('HDEL', jobs, id)
call('HDEL', whens, id)
call('HDEL', claims, id)
call('SET', did(this), '1', 'EX', KEPT_S)
return 1
