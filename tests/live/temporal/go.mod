module temporal.test

go 1.26.8

require go.temporal.io/server v1.32.0
