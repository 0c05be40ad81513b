#pragma once

#include <atomic>

namespace amalgam {
class work_unit;
}

/// A yield without asking the stream's scheduler, for an interface of another library that knows by
/// itself who is next.
namespace amalgam::detail {

/// Whether the calling ULT may yield by yield_directly(): its batch is not used up, nothing that
/// its stream puts first is ready, and nobody has asked anything of it. False: yield as usual.
bool may_yield_directly() noexcept;

/// Yields to `next`, which the caller took from a pool that its stream serves. Call it only if
/// may_yield_directly() was true just before.
/// Cost: one switch; two and the loop's if `next` is no ULT.
void yield_directly(work_unit& next) noexcept;

/// The same to a ULT, and without asking before. The calling ULT may stand in its pool already,
/// since `held` keeps all other streams from it: it is cleared when the ULT has been left. False:
/// nothing happened, `held` neither.
bool yield_directly_holding(work_unit& next, std::atomic<bool>& held) noexcept;

}  // namespace amalgam::detail
