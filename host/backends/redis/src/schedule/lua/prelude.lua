-- The base of every script of a schedule. KEYS[1] is the prefix of all its keys,
-- `{prefix:queue}:schedule`. The part in braces decides the slot of a cluster, so all keys are in
-- one, with the queue itself.
--
-- job      hash, id to the job as JSON; never changes
-- when     hash, id to its due time: milliseconds in 15 digits
-- due      sorted set without scores, "WHEN id": the soonest first, those of one time by id
-- claim    hash, id to "UNTIL token" while it has a claim
-- dead     hash, "WHEN id" to the job, for those that could not be read and have content
-- reason   hash, "WHEN id" to the reason why it could not be read
-- did:ID   a call that has changed something, for ten minutes: a repeated call changes nothing
local call = redis.call
local base = KEYS[1]
local jobs, whens, order, claims = base .. ':job', base .. ':when', base .. ':due', base .. ':claim'
local dead, reasons = base .. ':dead', base .. ':reason'
local KEPT_S = 600

local function did(id) return base .. ':did:' .. id end

local function is_free(id, now)
  local claim = call('HGET', claims, id)
  return not claim or tonumber(string.match(claim, '^%d+')) < tonumber(now)
end

local function place(when, id) return when .. ' ' .. id end
