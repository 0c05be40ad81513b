#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <new>
#include <vector>

#include <fmt/format.h>

#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/rpc/metrics.hpp>

#include "bulk/bulk_source.hpp"
#include "bulk/cache_memory.hpp"

namespace amalgam {
namespace detail {

/// One piece of memory, registered until freed.
struct cache_block {
    mutable_bytes bytes;
    std::shared_ptr<const bulk_source> source;
    std::size_t size_class = 0;
    std::shared_ptr<cache_block> next;  ///< While idle.
};

namespace {
constexpr std::size_t smallest = 4096;
constexpr std::size_t classes = 40;

std::size_t class_of(std::size_t bytes) noexcept {
    return static_cast<std::size_t>(std::bit_width((std::max(bytes, smallest) - 1) / smallest));
}
}  // namespace

class cache_core {
public:
    cache_core(engine_core& engine, const bulk_cache_options& options) noexcept
        : engine_(engine), alive_(engine), options_(options) {}
    ~cache_core() { trim(); }

    std::shared_ptr<cache_block> take(std::size_t bytes) {
        const std::size_t of = class_of(bytes);
        if (of >= classes || smallest << of > options_.max_bytes) refuse(bytes);
        std::shared_ptr<cache_block> given_up;  // Freed outside the lock.
        {
            const std::lock_guard one(lock_);
            ++counts_.taken;
            if (std::shared_ptr<cache_block> known = pop(of)) {
                ++counts_.reused;
                counts_.bytes_in_use += known->bytes.size();
                return known;
            }
            given_up = make_room(smallest << of);
            if (counts_.bytes_in_use + counts_.bytes_idle + (smallest << of) > options_.max_bytes) {
                --counts_.taken;
                refuse(bytes);
            }
            counts_.bytes_in_use += smallest << of;
        }
        free_all(std::move(given_up));
        try {
            return make(of);
        } catch (...) {
            const std::lock_guard one(lock_);
            --counts_.taken;
            counts_.bytes_in_use -= smallest << of;
            throw;
        }
    }

    void give_back(std::shared_ptr<cache_block> block) noexcept {
        const std::lock_guard one(lock_);
        counts_.bytes_in_use -= block->bytes.size();
        counts_.bytes_idle += block->bytes.size();
        std::shared_ptr<cache_block>& head = idle_[block->size_class];
        block->next = std::move(head);
        head = std::move(block);
    }

    void trim() noexcept {
        std::shared_ptr<cache_block> all;
        {
            const std::lock_guard one(lock_);
            all = make_room(~std::size_t{0});
        }
        free_all(std::move(all));
    }

    bulk_cache_counts counts() const noexcept {
        const std::lock_guard one(lock_);
        return counts_;
    }

    /// All caches of an engine add up.
    void show_in(metric_registry& numbers) {
        shown_ = numbers.add_group([this](metric_writer& into) {
            const bulk_cache_counts now = counts();
            const auto write = [&](const char* name, const char* help, metric_kind kind,
                                   std::uint64_t value, const char* unit = "") {
                into.add({name, help, kind, unit}, {}, static_cast<double>(value));
            };
            constexpr metric_kind grows = metric_kind::counter, varies = metric_kind::gauge;
            write("amalgam_bulk_cache_taken_total", "Buffers handed out by caches.", grows,
                  now.taken);
            write("amalgam_bulk_cache_reused_total",
                  "Buffers handed out without registering memory.", grows, now.reused);
            write("amalgam_bulk_cache_released_total", "Blocks of caches freed to make room.",
                  grows, now.released);
            write("amalgam_bulk_cache_used_bytes", "Blocks of caches that are handed out.", varies,
                  now.bytes_in_use, "bytes");
            write("amalgam_bulk_cache_idle_bytes", "Blocks of caches that are ready for reuse.",
                  varies, now.bytes_idle, "bytes");
        });
    }

private:
    [[noreturn]] void refuse(std::size_t bytes) const {
        throw error(
            errc::no_memory,
            fmt::format("a buffer of {} bytes exceeds the cache's limit of {} bytes in total; "
                        "return buffers first, or raise bulk_cache_options::max_bytes",
                        bytes, options_.max_bytes));
    }

    std::shared_ptr<cache_block> pop(std::size_t of) noexcept {
        std::shared_ptr<cache_block> block = std::move(idle_[of]);
        if (block == nullptr) return nullptr;
        idle_[of] = std::move(block->next);
        counts_.bytes_idle -= block->bytes.size();
        return block;
    }

    /// Removes idle blocks, the largest first, until `bytes` more fit.
    std::shared_ptr<cache_block> make_room(std::size_t bytes) noexcept {
        std::shared_ptr<cache_block> out;
        for (std::size_t of = classes; of-- > 0;) {
            while (idle_[of] != nullptr &&
                   (bytes > options_.max_bytes ||
                    counts_.bytes_in_use + counts_.bytes_idle > options_.max_bytes - bytes)) {
                std::shared_ptr<cache_block> block = pop(of);
                block->next = std::move(out);
                out = std::move(block);
                ++counts_.released;
            }
        }
        return out;
    }

    /// One by one: a chain that frees itself would recurse.
    static void free_all(std::shared_ptr<cache_block> chain) noexcept {
        while (chain != nullptr)
            chain = std::move(chain->next);
    }

    std::shared_ptr<cache_block> make(std::size_t of) {
        auto block = std::make_shared<cache_block>();
        port_memory memory = memory_.allocate(smallest << of);
        block->bytes = memory.bytes;
        block->size_class = of;
        block->source = source_of(show(engine_, scatter(&memory.bytes, 1), options_.rights,
                                       std::move(memory.holder), options_.shareable));
        return block;
    }

    engine_core& engine_;
    core_reference alive_;
    cache_memory memory_{engine_};
    bulk_cache_options options_;
    mutable std::mutex lock_;
    std::array<std::shared_ptr<cache_block>, classes> idle_;
    bulk_cache_counts counts_;
    metric_registry::registration shown_;  // Last: what it reads is still there when it ends.
};

}  // namespace detail

bulk_buffer::bulk_buffer(std::shared_ptr<detail::cache_core> cache,
                         std::shared_ptr<detail::cache_block> block, std::size_t size) noexcept
    : cache_(std::move(cache)), block_(std::move(block)), size_(size) {}

void bulk_buffer::give_back() noexcept {
    cache_->give_back(std::move(block_));
}

std::byte* bulk_buffer::data() const noexcept {
    return block_ == nullptr ? nullptr : block_->bytes.data();
}
std::size_t bulk_buffer::capacity() const noexcept {
    return block_ == nullptr ? 0 : block_->bytes.size();
}
bulk bulk_buffer::descriptor() const {
    return block_ == nullptr ? bulk() : bulk(block_->source, 0, size_);
}

bulk_cache::bulk_cache(engine& where, const bulk_cache_options& options)
    : core_(std::make_shared<detail::cache_core>(where.core(), options)) {
    core_->show_in(metrics_of(where));
}

bulk_cache::~bulk_cache() {
    core_->trim();
}

bulk_buffer bulk_cache::take(std::size_t bytes) {
    return {core_, core_->take(bytes), bytes};
}

bulk_buffer bulk_cache::try_take(std::size_t bytes) noexcept {
    try {
        return take(bytes);
    } catch (...) {
        return {};
    }
}

void bulk_cache::trim() noexcept {
    core_->trim();
}
bulk_cache_counts bulk_cache::counts() const noexcept {
    return core_->counts();
}

bulk expose_owned(engine& where, bulk_buffer&& bytes) {
    if (!bytes) return {};
    const std::uint64_t size = bytes.size();
    auto source = detail::source_of(bytes.block_->source->memory);
    if (source->core != &where.core()) {
        throw error(
            errc::invalid,
            "the buffer's cache belongs to another engine; expose the buffer with that engine");
    }
    source->holder = std::make_shared<bulk_buffer>(std::move(bytes));
    return {std::move(source), 0, size};
}

}  // namespace amalgam
