#pragma once

#include <atomic>
#include <cstddef>

namespace amalgam {
class execution_stream;
class poller;
}  // namespace amalgam

namespace amalgam::detail {

class stream_loop;

/// How an event loop shares a driven stream with who ends it: one of them drives at a time.
///
/// A turn of the loop has two steps. Between them the caller, who has the stream to itself then,
/// looks whether a poller of its own has work: that look is most of a turn that finds nothing, and
/// in line there.
///
///     if (turns.take()) has_work ? turns.drive_with_work(most) : turns.drive_without_work(most);
///
/// One word of the stream tells who has it: one bit that somebody drives it, and others why it is
/// kept from the loop. The loop takes it where none is set. Who keeps it sets a bit, waits until it
/// is not being_driven(), and then has it to himself, with drive_kept().
///
/// Owner:   the loop; the stream outlives it.
/// Threads: any, once it is open and knows its poller.
class drive_turns {
public:
    /// The bit that somebody drives the stream. The others are free for keep().
    static constexpr unsigned driven = 1;

    /// Must come first, in the process that made the stream.
    void open(execution_stream& what) noexcept;
    /// Whose work is looked at between the two steps.
    void look_at(const poller& which) noexcept { looked_ = &which; }

    /// False: somebody drives the stream, or keeps it. True: one of the next two must follow.
    bool take() noexcept {
        unsigned nobody = 0;
        return word_->compare_exchange_strong(nobody, driven, std::memory_order_seq_cst);
    }
    /// As execution_stream::run_ready(); the poller has work, or has none. If it is not the only
    /// one, all are asked.
    std::size_t drive_with_work(std::size_t most) noexcept;
    std::size_t drive_without_work(std::size_t most) noexcept;

    /// From now on take() fails, until let_go() of each reason. `why`: one bit. False: it was set.
    bool keep(unsigned why) noexcept {
        return (word_->fetch_or(why, std::memory_order_seq_cst) & why) == 0;
    }
    void let_go(unsigned why) noexcept { word_->fetch_and(~why, std::memory_order_release); }
    bool is_kept(unsigned why) const noexcept {
        return (word_->load(std::memory_order_seq_cst) & why) != 0;
    }
    /// In a child of fork(): only for this reason, and by no other thread.
    void keep_in_child(unsigned why) noexcept {
        last_.store(nullptr, std::memory_order_relaxed);
        word_->store((word_->load(std::memory_order_relaxed) & driven) | why,
                     std::memory_order_relaxed);
    }
    /// For who keeps the stream: as execution_stream::run_ready().
    std::size_t drive_kept() noexcept;
    /// Whether some thread is in run_ready(), or between take() and the end of what follows.
    bool being_driven() const noexcept { return is_kept(driven); }

    /// The calling thread is the loop's, as if it had just driven the stream.
    void drives_here() noexcept;
    /// Whether some thread is.
    bool has_driver() const noexcept { return last_.load(std::memory_order_relaxed) != nullptr; }
    /// Whether the calling thread last drove. If so, and the stream's wait handle is in use, wakes
    /// the stream, as this thread may give it something to do between two turns.
    bool wake_if_driver() const noexcept;

private:
    std::atomic<unsigned>* word_ = nullptr;
    stream_loop* loop_ = nullptr;
    const poller* looked_ = nullptr;
    std::atomic<const void*> last_{nullptr};  // Names the thread that last drove; null: none has.
};

/// Whether the calling thread drives the stream, also below another one that it drives meanwhile.
bool driven_here(const execution_stream& what) noexcept;

}  // namespace amalgam::detail
