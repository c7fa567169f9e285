module handlers/order-check

go 1.25
