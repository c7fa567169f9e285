-- Keeps a worker alive, and looks for dead ones. ARGV: the worker. Returns 1 if it was alive, the
-- number of its processes that others have taken away, these processes, and all that it still has.
local alive = is_alive(ARGV[1]) and give_life(ARGV[1], 'XX')
local gone, there = {}, {}
for _, id in ipairs(call('HKEYS', held(ARGV[1]))) do
  if call('EXISTS', process_key(id)) == 0 then
    call('HDEL', held(ARGV[1]), id)
    gone[#gone + 1] = id
  else
    there[#there + 1] = id
    -- The package's `failWorker` forgets a process that is taken while it looks.
    call('SADD', working(queue_of(id)), id)
  end
end

local kept, others = {}, {}
for _, w in ipairs(call('SMEMBERS', p .. ':workers')) do
  if is_alive(w) then
    if call('SISMEMBER', own .. 'workers', w) == 1 then
      for _, id in ipairs(call('HKEYS', held(w))) do kept[id] = true end
    else
      for _, q in ipairs(call('SMEMBERS', p .. ':workingQueues:' .. w)) do others[q] = true end
    end
  end
end

for _, w in ipairs(call('SMEMBERS', p .. ':expiringWorkers')) do
  if not is_alive(w) then
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
      -- The package does not record whose a process is. If another of its workers lives, the
      -- package's supervisor must decide. If none does, all processes that no dispatcher holds were
      -- the dead worker's.
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
