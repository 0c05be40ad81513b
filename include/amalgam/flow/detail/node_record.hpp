#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/rpc/archive.hpp>

namespace amalgam::detail {

/// One node in a checkpoint.
struct node_record {
    std::string name;
    bool ended = false;  ///< It has sent everything, and its end() has returned.
    std::vector<std::uint8_t> ended_inputs;  ///< 1: its end_of_stream() has been called.
    std::vector<std::byte> state;            ///< As its serialize() has written it.

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(name, ended, ended_inputs, state);
    }
};

/// Where a node's serialize() writes to.
class state_bytes {
public:
    // Target of basic_archive_writer.
    std::byte* extend(std::size_t bytes) {
        bytes_.resize(bytes_.size() + bytes);
        return bytes_.data() + bytes_.size() - bytes;
    }
    std::size_t size() const noexcept { return bytes_.size(); }

    std::vector<std::byte> take() noexcept { return std::move(bytes_); }

private:
    std::vector<std::byte> bytes_;
};

/// Throws error{mismatch}: a node does not understand what it has saved.
[[noreturn]] void throw_bad_state(const std::string& node, std::string_view why);

/// Takes part in checkpoints for one node.
///
/// Threads: the node's ULT, but ask(): any.
class node_marks {
public:
    virtual ~node_marks() = default;

    /// Of a source: that checkpoint is to be taken after its current step.
    void ask(std::uint64_t number) noexcept { asked_.store(number, std::memory_order_release); }
    /// A source is between two steps.
    void between_steps() {
        const std::uint64_t asked = asked_.load(std::memory_order_acquire);
        if (asked > taken_) reached(asked);
    }
    /// All inputs have come to the mark of that checkpoint, or to their end: saves the node, and
    /// sends the mark on.
    void reached(std::uint64_t number) {
        taken_ = number;
        save_and_pass_on(number);
    }

private:
    virtual void save_and_pass_on(std::uint64_t number) = 0;

    std::atomic<std::uint64_t> asked_{0};
    std::uint64_t taken_ = 0;
};

}  // namespace amalgam::detail
