#include "bulk/served_memory.hpp"

#include <cstring>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/tasks/parking.hpp>

namespace amalgam {
namespace detail {

namespace {

class host_kind final : public memory_kind {
public:
    std::string_view name() const noexcept override { return "host"; }
    void* allocate(std::size_t bytes) override { return ::operator new(bytes); }
    void release(void* memory, std::size_t) noexcept override { ::operator delete(memory); }
    void read(const void* memory, std::size_t offset, mutable_bytes into) override {
        std::memcpy(into.data(), static_cast<const std::byte*>(memory) + offset, into.size());
    }
    void write(void* memory, std::size_t offset, const_bytes from) override {
        std::memcpy(static_cast<std::byte*>(memory) + offset, from.data(), from.size());
    }
};

void check_view(const memory_view& memory) {
    if (memory.kind == nullptr) {
        throw error(errc::invalid,
                    "the memory_view has no kind, expected one such as &amalgam::host_memory()");
    }
    if (memory.bytes <= std::numeric_limits<std::size_t>::max() - memory.offset) return;
    throw error(errc::invalid,
                fmt::format("the memory_view has {} bytes at offset {}, which is past "
                            "the end of the address space; example: {{&kind, block, "
                            "0, 4096}}",
                            memory.bytes, memory.offset));
}

void check_same_size(const char* verb, const amalgam::bulk& far, const memory_view& here) {
    check_view(here);
    if (far.bytes() == here.bytes) return;
    throw error(errc::invalid,
                fmt::format("a {} between a bulk of {} bytes and {} bytes of {} memory, expected "
                            "the same number; bulk::part() makes a part of a bulk",
                            verb, far.bytes(), here.bytes, here.kind->name()));
}

/// Pieces in flight while memory of a kind is moved from here.
constexpr std::size_t depth = 4;

}  // namespace

void served_block::close() noexcept {
    is_open_.store(false, std::memory_order_relaxed);
    const cancel_later it_must_not_throw;
    try {
        const std::lock_guard alone(lock_);
    } catch (const error& why) {
        log(log_level::error, "bulk", "closed served memory without waiting for its last readers",
            {{"why", why.what()}});
    }
}

void served_block::check(access asked, std::uint64_t offset, std::size_t bytes) const {
    if (!is_open_.load(std::memory_order_relaxed))
        throw error(errc::denied, "the memory is no longer served");
    if (!allows(rights_, asked))
        throw error(errc::denied, fmt::format("the memory is served for {} only",
                                              asked == access::write ? "reading" : "writing"));
    if (offset > memory_.bytes || bytes > memory_.bytes - offset) {
        throw error(errc::invalid, fmt::format("{} bytes at offset {} are out of range, as {} are "
                                               "served",
                                               bytes, offset, memory_.bytes));
    }
}

void served_block::read(std::uint64_t offset, mutable_bytes into) {
    const std::shared_lock shared(lock_);
    check(access::read, offset, into.size());
    memory_.kind->read(memory_.memory, memory_.offset + static_cast<std::size_t>(offset), into);
}

void served_block::write(std::uint64_t offset, const_bytes from) {
    const std::shared_lock shared(lock_);
    check(access::write, offset, from.size());
    memory_.kind->write(memory_.memory, memory_.offset + static_cast<std::size_t>(offset), from);
}

void served_blocks::add(const std::shared_ptr<served_block>& block) {
    const std::lock_guard hold(lock_);
    std::erase_if(all_, [](const auto& each) { return each.second.expired(); });
    all_.emplace(block->secret(), block);
}

std::shared_ptr<served_block> served_blocks::find(std::uint64_t secret) {
    const std::lock_guard hold(lock_);
    const auto at = all_.find(secret);
    auto found = at == all_.end() ? nullptr : at->second.lock();
    if (found == nullptr) throw error(errc::denied, "the memory is no longer served");
    return found;
}

std::vector<std::byte> served_blocks::read(std::uint64_t secret, std::uint64_t offset,
                                           std::uint32_t bytes) {
    if (bytes > served_piece_bytes) {
        throw error(errc::invalid, fmt::format("a piece of {} bytes, expected at most {}", bytes,
                                               served_piece_bytes));
    }
    const auto block = find(secret);
    buffers_.acquire();
    const std::unique_ptr<semaphore, void (*)(semaphore*)> one(
        &buffers_, [](semaphore* all) { all->release(); });
    std::vector<std::byte> piece(bytes);
    block->read(offset, piece);
    return piece;
}

void served_blocks::write(std::uint64_t secret, std::uint64_t offset, const_bytes from) {
    find(secret)->write(offset, from);
}

void served_blocks::close_all() noexcept {
    std::map<std::uint64_t, std::weak_ptr<served_block>> open;
    {
        const std::lock_guard hold(lock_);
        open.swap(all_);
    }
    for (const auto& [secret, each] : open)
        if (const auto one = each.lock()) one->close();
}

}  // namespace detail

memory_kind& host_memory() noexcept {
    static detail::host_kind one;
    return one;
}

void pull(const bulk& from, const memory_view& into, const pipeline_options& how) {
    detail::check_same_size("pull", from, into);
    if (into.bytes == 0) return;
    from.pull_pipelined(
        detail::served_piece_bytes, detail::depth,
        [&](const_bytes chunk, std::uint64_t at) {
            into.kind->write(into.memory, into.offset + static_cast<std::size_t>(at), chunk);
        },
        how);
}

void push(const bulk& to, const memory_view& from, const pipeline_options& how) {
    detail::check_same_size("push", to, from);
    if (from.bytes == 0) return;
    to.push_pipelined(
        detail::served_piece_bytes, detail::depth,
        [&](mutable_bytes chunk, std::uint64_t at) {
            from.kind->read(from.memory, from.offset + static_cast<std::size_t>(at), chunk);
        },
        how);
}

void served_memory::close() noexcept {
    if (block_ != nullptr) std::exchange(block_, nullptr)->close();
}

memory_server::memory_server(engine& where, const memory_server_options& options)
    : where_(where), blocks_(std::make_shared<detail::served_blocks>(options.buffers)) {
    if (options.buffers == 0) {
        throw error(errc::invalid,
                    "memory_server_options::buffers is 0, expected at least 1; example: 32");
    }
    const auto all = blocks_;
    detail::define_first(where.core(), detail::read_served_name, "a memory_server", [&] {
        where.define(detail::library_name{detail::read_served_name},
                     [all](std::uint64_t secret, std::uint64_t offset, std::uint32_t bytes) {
                         return all->read(secret, offset, bytes);
                     });
    });
    where.define(detail::library_name{detail::write_served_name},
                 [all](std::uint64_t secret, std::uint64_t offset,
                       std::span<const std::byte> bytes) { all->write(secret, offset, bytes); });
}

memory_server::~memory_server() {
    const detail::served_name own[] = {{detail::read_served_name}, {detail::write_served_name}};
    detail::end_serving(where_.core(), own);
    blocks_->close_all();
}

served_memory memory_server::serve(const memory_view& memory, access rights) {
    detail::check_view(memory);
    detail::check_runs(where_.core());
    if (!detail::is_right(rights)) {
        throw error(
            errc::invalid,
            "invalid access rights, expected access::read, access::write or access::read_write");
    }
    served_memory made;
    const std::uint64_t secret = random_u64();
    made.block_ = std::make_shared<detail::served_block>(memory, rights, secret);
    made.bulk_ =
        bulk(detail::served_source(where_.core(), secret, memory.bytes, rights), 0, memory.bytes);
    blocks_->add(made.block_);
    return made;
}

}  // namespace amalgam
