#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace amalgam::detail {

/// For ports that can tell, for less than progress() costs, that it has nothing to do. A port
/// derives from it; whoever drives one that does not must call progress() until that finds nothing.
///
/// Most looks are for the next message of the only peer, and find none. So a port says where that
/// will be, and such a look calls no function of it.
///
/// Threads: the port's.
class port_work {
public:
    /// A message is there once the word at `at` is `position`.
    struct next_message {
        std::uint64_t position;
        std::byte* at;

        bool is_there(std::memory_order how = std::memory_order_acquire) const noexcept {
            return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at))
                       .load(how) == position;
        }
    };

    /// False: progress() would find nothing now.
    bool has_work() noexcept {
        const looked found = look();
        return found == looked::unclear ? ask() : found == looked::something;
    }
    /// has_work() in two steps. The first makes no call.
    enum class looked { nothing, something, unclear };
    looked look() noexcept {
        if (has_more_ || only_ == nullptr) [[unlikely]]
            return looked::unclear;
        if (only_->is_there()) return looked::something;
        return ++looks_ % looks_between != 0 ? looked::nothing : looked::unclear;
    }
    /// The second, which must follow where it is unclear.
    bool ask() noexcept { return has_more_ || only_ == nullptr ? finds_work() : must_look(); }
    /// The same after a progress() that did not use up its budget, apart from what arrived since.
    bool has_more() noexcept { return has_more_ && finds_work(); }

protected:
    ~port_work() = default;

    /// As has_work(), when that cannot say itself.
    virtual bool finds_work() noexcept = 0;
    /// Asked in every sixteenth look that finds nothing: true if progress() is to be called
    /// although nothing came.
    virtual bool asks_to_look() noexcept = 0;
    bool is_time_to_look() noexcept { return ++looks_ % looks_between == 0 && must_look(); }

    /// All that comes, comes there; null: finds_work() says what came.
    const next_message* only_ = nullptr;
    /// There may be work that did not come as a message.
    bool has_more_ = false;

private:
    static constexpr unsigned looks_between = 16;

    bool must_look() noexcept {
        if (!asks_to_look()) return false;
        --looks_;  // So that it is asked again until progress() has looked.
        return true;
    }

    unsigned looks_ = 0;  // That found nothing.
};

}  // namespace amalgam::detail
