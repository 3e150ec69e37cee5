// The vector environment, and games frame by frame, for Python: without XLA, so that neither JAX
// nor its headers are needed.
#include "vector/calls.h"
#include "vector/game_calls.h"
