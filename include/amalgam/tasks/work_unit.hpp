#pragma once

namespace amalgam {

class execution_stream;
namespace detail {
class stream;
struct bell;
}  // namespace detail

/// Something a stream can run: a ready ULT or a tasklet. Intrusive: pools link
/// units through themselves, so queueing never allocates.
///
/// Owner:   whoever made it; it must live until its run function was entered.
/// Threads: in at most one pool at a time.
class work_unit {
public:
    /// Runs the unit on the stream that popped it. Runs on the stream's own stack,
    /// so it must not wait. It may destroy the unit.
    using run_function = void (*)(work_unit&) noexcept;

    explicit work_unit(run_function how) noexcept : run_(how) {}
    work_unit(const work_unit&) = delete;
    work_unit& operator=(const work_unit&) = delete;

    void run() noexcept { run_(*this); }

    work_unit* next_in_pool = nullptr;  ///< For the pool that holds it; nobody else.

protected:
    ~work_unit() = default;

private:
    friend class detail::stream;
    run_function run_;
};

}  // namespace amalgam
