module order-check

go 1.25
