#pragma once

#include <atomic>
#include <cstddef>

namespace amalgam {
class execution_stream;
}

namespace amalgam::detail {

/// How an event loop shares a driven stream with who ends it: one of them drives at a time.
///
/// Threads: any.
struct drive_turns {
    /// Of drive(): nothing was done.
    static constexpr std::size_t not_now = ~std::size_t{0};

    /// Not 0: drive() leaves the stream alone. Who has set it waits until the stream is not
    /// being_driven(), and then has it to himself, with drive_kept().
    std::atomic<unsigned> kept{0};
    /// this_driver() of who last drove.
    std::atomic<const void*> last{nullptr};
};

/// As execution_stream::run_ready(), but where somebody else drives the stream, or keeps it,
/// returns `not_now`. Precondition: the stream is driven, not kept before it is complete, and this
/// is the process that made it. Cost: some 70 instructions if nothing is ready.
std::size_t drive(execution_stream& what, drive_turns& turns, std::size_t most);
/// For who keeps the stream: waits for a drive() that is only looking who does.
std::size_t drive_kept(execution_stream& what);
/// Whether some thread is in run_ready() or drive().
bool being_driven(const execution_stream& what) noexcept;
/// Whether the calling thread is, also below another stream that it drives meanwhile.
bool driven_here(const execution_stream& what) noexcept;
/// Names the calling thread, for comparison only.
const void* this_driver() noexcept;

}  // namespace amalgam::detail
