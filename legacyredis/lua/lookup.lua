local token = ARGV[5]
return { 'ok', 0, answer(token, read_hold(token)) }
