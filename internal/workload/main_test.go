package workload

import (
	"testing"

	"holdover/internal/teststack"
)

func TestMain(m *testing.M) { teststack.Main(m) }
