-- Removes a job that cannot be read from those that wait, and keeps what there is of it. ARGV: the
-- call's id, the job's place, the current time, the reason. Returns 1, or 0 if the job is gone or
-- claimed by another process. A claim that cannot be read belongs to no process.
local this, where, now, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if call('EXISTS', did(this)) == 1 then return 1 end
if not call('ZSCORE', order, where) then return 0 end
local id = string.sub(where, 17)
local when = call('HGET', whens, id)
local whole = when and place(when, id) == where
if whole then
  local claim = call('HGET', claims, id)
  local till = claim and tonumber(string.match(claim, '^%d+'))
  if till and till >= tonumber(now) then return 0 end
  local job = call('HGET', jobs, id)
  if job then call('HSET', dead, where, job) end
  call('HDEL', jobs, id)
  call('HDEL', whens, id)
  call('HDEL', claims, id)
end
call('HSET', reasons, where, reason)
call('ZREM', order, where)
call('SET', did(this), '1', 'EX', KEPT_S)
return 1
