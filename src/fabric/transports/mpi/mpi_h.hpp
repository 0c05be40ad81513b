#pragma once

// MPI's header without its C++ classes of long ago.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
