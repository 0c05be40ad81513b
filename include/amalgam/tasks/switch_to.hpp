#pragma once

#include <utility>

#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/ult_ref.hpp>

namespace amalgam {

/// Ways of leaving a ULT that say who runs next, as this_task::yield_to() does: without a scheduler
/// in between. `next` must be ready in a pool of this stream that can give it out of turn (all of
/// the library's can). If it is not (it runs, is parked, has ended, is queued for other streams),
/// or if the stream's batch of work is used up, so that pollers and timers get their turn, the
/// caller leaves all the same and the scheduler chooses. Where the result is bool, it tells: true
/// if `next` was run at once.
///
/// Threads: by a ULT; else error{invalid}. A name may be used from anywhere.
/// Failure: error{invalid} for an empty handle or name.
/// Cost:    as yield_to(); names take a lock of the ULT's.
namespace this_task {

/// As yield_to(ult&).
bool yield_to(const ult_ref& next);

/// suspend() that leaves to `next`. If the caller was resumed before, it yields to `next` instead.
/// Returns once the caller is resumed.
bool suspend_to(ult& next);
bool suspend_to(const ult_ref& next);

/// exit() that leaves to `next`, if it is ready by the time that the stack is unwound. Throws
/// std::bad_alloc, and does not exit, if there is no memory.
[[noreturn]] void exit_to(ult& next);
[[noreturn]] void exit_to(const ult_ref& next);

/// Resumes `next` and leaves to it; the caller is ready again. To suspend or exit instead, call
/// `next.resume()`, then suspend_to(next) or exit_to(next).
bool resume_and_yield_to(ult& next);
bool resume_and_yield_to(const ult_ref& next);

}  // namespace this_task

/// As spawn(), and the caller, a ULT, yields to the new one.
template <typename Function>
ult spawn_to(pool& where, Function&& body, ult_options options = {}) {
    this_task::home();  // throws before anything is created
    ult made = spawn(where, std::forward<Function>(body), options);
    this_task::yield_to(made);
    return made;
}
template <typename Function>
ult spawn_to(execution_stream& where, Function&& body, ult_options options = {}) {
    return spawn_to(where.main_pool(), std::forward<Function>(body), options);
}

}  // namespace amalgam
