#pragma once

// MPI's header without its obsolete C++ classes.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
