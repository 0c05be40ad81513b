#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/flow/detail/fastflow_end.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {

/// Serialized items of one batch; the target of archives.
class fastflow_batch {
public:
    fastflow_batch(buffer_pool& from, std::size_t usual_bytes) noexcept
        : pool_(&from), usual_bytes_(usual_bytes) {}

    std::byte* extend(std::size_t more);
    void shrink(std::size_t to) noexcept { bytes_.resize(to); }
    std::size_t size() const noexcept { return bytes_.size(); }
    const_bytes bytes() const noexcept { return bytes_.bytes(); }

    std::uint32_t items = 0;

private:
    buffer_pool* pool_;
    std::size_t usual_bytes_;
    buffer bytes_;
};

/// A FastFlow program's sender, type-erased.
///
/// For each receiver, a few ULTs take turns: one takes the open batch, calls, and returns once it
/// was consumed. A batch is taken when it is full, or when nothing is in flight to that receiver:
/// so single items leave at once, and none waits for the next.
/// Threads: join(), send() and end() by the node's thread; the rest by any.
class fastflow_out final : public fastflow_end {
public:
    fastflow_out(std::vector<std::string> receivers, std::string type, fastflow_options options);
    ~fastflow_out() { close(); }

    /// Finds all receivers; reports a failure like any other.
    void join();

    /// `write(archive)` appends one item for that receiver; without one, for the least loaded.
    /// False: this end failed, and nothing more is sent. Waits for room.
    /// Failure: throws error{invalid} if there is no such receiver, and what `write` throws.
    template <typename Write>
    bool send(std::optional<std::size_t> receiver, Write write) {
        std::unique_lock hold(lock_);
        link* const to = wait_for_room(receiver, hold);
        if (to == nullptr) return false;
        const std::size_t before = to->open.size();
        try {
            basic_archive_writer<fastflow_batch> archive(to->open);
            write(archive);
        } catch (...) {
            to->open.shrink(before);
            throw;
        }
        add_item(*to);
        return true;
    }

    /// Waits until everything was consumed, then sends end of stream to every receiver.
    void end();

private:
    struct link : far_end {
        explicit link(fastflow_batch first) : open(std::move(first)) {}

        std::string address;
        fastflow_batch open;
        std::uint64_t batches = 0;
        std::uint64_t items = 0;
        unsigned in_flight = 0;
        bool called = false;  ///< A ULT was woken to take the open batch.
        condition_variable due;
    };

    bool join(link& at, clock::time_point deadline);
    link* wait_for_room(std::optional<std::size_t> receiver, std::unique_lock<mutex>& hold);
    void add_item(link& to);
    link& least_busy() noexcept;
    void take_turns(link& to);
    void post(link& to, std::unique_lock<mutex>& hold);
    void fail_to_send(const link& to, const failure& why);
    bool is_full(const link& of) const noexcept { return of.open.size() >= options_.batch_bytes; }
    bool is_due(const link& of) const noexcept {
        return of.open.items != 0 && (of.in_flight == 0 || is_full(of));
    }
    fastflow_batch new_batch() noexcept { return {room_, options_.batch_bytes}; }
    void end_ults() override;
    void wake_all() noexcept override;

    const std::string type_;
    buffer_pool room_;
    std::vector<std::unique_ptr<link>> links_;
    std::vector<ult> ults_;
    std::size_t turn_ = 0;  ///< Receiver of the most recently started batch.
};

}  // namespace amalgam::detail
