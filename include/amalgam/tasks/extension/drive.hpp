#pragma once

#include <atomic>
#include <cstddef>

namespace amalgam {
class execution_stream;
class poller;
}  // namespace amalgam

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
/// is the process that made it. Cost: some 60 instructions if nothing is ready.
std::size_t drive(execution_stream& what, drive_turns& turns, std::size_t most);

/// Whether somebody drives the stream, for take_to_drive(). Valid as long as the stream.
std::atomic<bool>& driven_word(execution_stream& what) noexcept;
/// Gives back what was just taken.
void leave_to_keeper(execution_stream& what) noexcept;
/// drive() in two steps. Between them its caller, who has the stream to itself then, looks whether
/// a poller of its own has work: that look is most of a turn that finds nothing, and in line here.
/// `what()`: the stream. False: somebody else drives it, or keeps it. True: one of the next two
/// must follow.
template <typename What>
inline bool take_to_drive(std::atomic<bool>& word, drive_turns& turns, What what) noexcept {
    if (word.exchange(true, std::memory_order_seq_cst)) [[unlikely]]
        return false;
    // seq_cst, as the exchange before it: who keeps the stream stores `kept`, then looks whether it
    // is in use.
    if (turns.kept.load(std::memory_order_seq_cst) == 0) [[likely]]
        return true;
    leave_to_keeper(what());
    return false;
}
/// `looked` has work, or has none. If it is not the only poller, all are asked.
std::size_t drive_with_work(execution_stream& what, std::size_t most, drive_turns& turns,
                            const poller& looked);
std::size_t drive_without_work(execution_stream& what, std::size_t most, drive_turns& turns,
                               const poller& looked);
/// If `driver`, which is this_driver() of who last drove, is the calling thread: as wake_driver().
bool wake_if_driver(execution_stream& what, const void* driver) noexcept;

/// For who keeps the stream: waits for a drive() that is only looking who does.
std::size_t drive_kept(execution_stream& what);
/// Whether some thread is in run_ready() or drive().
bool being_driven(const execution_stream& what) noexcept;
/// Whether the calling thread is, also below another stream that it drives meanwhile.
bool driven_here(const execution_stream& what) noexcept;
/// For its driver between two turns, who has given it something to do: as wake(), but costs next to
/// nothing unless its wait handle is in use.
void wake_driver(execution_stream& what) noexcept;
/// Names the calling thread, for comparison only.
const void* this_driver() noexcept;

}  // namespace amalgam::detail
