-- Returns a part of a process's task. ARGV: the process, and the first and last byte, from 1.
return string.sub(call('LINDEX', process_key(ARGV[1]), 0) or '', tonumber(ARGV[2]), tonumber(ARGV[3]))
