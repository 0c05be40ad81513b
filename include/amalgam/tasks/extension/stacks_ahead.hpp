#pragma once

#include <cstddef>

namespace amalgam::detail {

/// Maps stacks of the usual size before ULTs need them, for whichever threads of the process do: as
/// many as asked for, or fewer. Each is address space of some 320 KiB, and a page of memory.
///
/// Threads: any.
/// Failure: none is told. With a limit on address space (ulimit -v) it maps none; where memory is
///          locked as it is mapped, or the kernel has no guards within a mapping, no more than one.
/// Cost:    for each some 4,500 cycles, which the first use of a stack costs otherwise.
void map_stacks_ahead(std::size_t number) noexcept;

}  // namespace amalgam::detail
