-- Keeps a worker alive, and looks for the dead. ARGV: the worker. Answers with 1 if it was alive,
-- how many of its processes somebody has taken away, these, and all that it has.
local alive = call('SET', timer(ARGV[1]), 'RUN', 'XX', 'EX', 3)
local gone, there = {}, {}
for _, id in ipairs(call('HKEYS', held(ARGV[1]))) do
  if call('EXISTS', process_key(id)) == 0 then
    call('HDEL', held(ARGV[1]), id)
    gone[#gone + 1] = id
  else
    there[#there + 1] = id
    -- The package's `failWorker` forgets what is taken while it looks.
    call('SADD', working(queue_of(id)), id)
  end
end

local kept, others = {}, {}
for _, w in ipairs(call('SMEMBERS', p .. ':workers')) do
  if call('EXISTS', timer(w)) == 1 then
    if call('SISMEMBER', own .. 'workers', w) == 1 then
      for _, id in ipairs(call('HKEYS', held(w))) do kept[id] = true end
    else
      for _, q in ipairs(call('SMEMBERS', p .. ':workingQueues:' .. w)) do others[q] = true end
    end
  end
end

-- In their old order: ids of one worker sort as they were taken.
local function return_all(q, ids)
  table.sort(ids, function(a, b) return a > b end)
  local back = 0
  for _, id in ipairs(ids) do
    call('ZREM', released(q), id)
    back = back + give_back(q, id)
  end
  if back > 0 then wake(q, back) end
end

local function forget(w)
  for _, set in ipairs({ 'workers', 'expiringWorkers', 'permanentWorkers' }) do
    call('SREM', p .. ':' .. set, w)
  end
  call('SREM', own .. 'workers', w)
  call('DEL', p .. ':workingQueues:' .. w, held(w))
end

for _, w in ipairs(call('SMEMBERS', p .. ':expiringWorkers')) do
  if call('EXISTS', timer(w)) == 0 then
    local queues = call('SMEMBERS', p .. ':workingQueues:' .. w)
    if call('SISMEMBER', own .. 'workers', w) == 1 then
      local by_queue = {}
      for _, id in ipairs(call('HKEYS', held(w))) do
        local q = queue_of(id)
        local task = call('LINDEX', process_key(id), 0)
        if task then failed(q, task, call('HGET', held(w), id)) end
        by_queue[q] = by_queue[q] or {}
        table.insert(by_queue[q], id)
      end
      for q, ids in pairs(by_queue) do return_all(q, ids) end
      forget(w)
    else
      -- Whose a process is, the package does not say. Where another of its workers lives, its own
      -- supervisor must judge; where none does, all that no dispatcher holds was the dead one's.
      local mixed = false
      for _, q in ipairs(queues) do mixed = mixed or others[q] end
      if not mixed then
        for _, q in ipairs(queues) do
          local ids = {}
          for _, id in ipairs(call('SMEMBERS', working(q))) do
            if not kept[id] and not call('ZSCORE', released(q), id) then ids[#ids + 1] = id end
          end
          return_all(q, ids)
        end
        forget(w)
      end
    end
  end
end
local answer = { alive and '1' or '0', tostring(#gone) }
for _, id in ipairs(gone) do answer[#answer + 1] = id end
for _, id in ipairs(there) do answer[#answer + 1] = id end
return answer
