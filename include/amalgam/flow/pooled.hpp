#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/codec.hpp>

namespace amalgam {

template <typename T>
class item_pool;

namespace detail {

/// State shared by an item_pool and its outstanding items; freed with the last of them.
template <typename T>
class pool_of_items {
public:
    struct node {
        explicit node(pool_of_items& of) : home(of) {}
        T value{};
        node* next = nullptr;
        pool_of_items& home;
    };

    /// Pool owner only.
    node* get() {
        if (free_ == nullptr) free_ = returned_.exchange(nullptr, std::memory_order_acquire);
        if (free_ == nullptr) {
            auto made = std::make_unique<node>(*this);
            owners_.fetch_add(1, std::memory_order_relaxed);
            return made.release();
        }
        return std::exchange(free_, free_->next);
    }
    /// Any thread.
    static void give_back(node* one) noexcept {
        pool_of_items& home = one->home;
        node* top = home.returned_.load(std::memory_order_acquire);
        do {
            if (top == home.closed()) {
                delete one;
                return home.leave(1);
            }
            one->next = top;
        } while (!home.returned_.compare_exchange_weak(top, one, std::memory_order_acq_rel));
    }
    /// The pool ends; outstanding items are deleted when they are returned.
    void close() noexcept {
        leave(1 + delete_all(free_) +
              delete_all(returned_.exchange(closed(), std::memory_order_acq_rel)));
    }
    /// Items in existence, idle or outstanding.
    std::size_t size() const noexcept { return owners_.load(std::memory_order_relaxed) - 1; }

private:
    /// Sentinel at the top of the returned list once the pool has ended; never dereferenced.
    node* closed() noexcept { return reinterpret_cast<node*>(this); }
    static std::size_t delete_all(node* top) noexcept {
        std::size_t count = 0;
        for (; top != nullptr; ++count)
            delete std::exchange(top, top->next);
        return count;
    }
    void leave(std::size_t owners) noexcept {
        if (owners_.fetch_sub(owners, std::memory_order_acq_rel) == owners) delete this;
    }

    node* free_ = nullptr;
    alignas(64) std::atomic<node*> returned_{nullptr};
    std::atomic<std::size_t> owners_{1};  ///< The pool, plus one per item.
};

}  // namespace detail

/// An item that returns to its pool on destruction, unchanged: memory its members allocated is
/// reused. Otherwise like a unique_ptr.
///
/// To another process it is sent as a T, and received into an item from a pool of the receiving
/// thread.
///
/// Owner:   owns the item; may outlive the pool.
/// Threads: like any value; may be destroyed on a thread other than the pool's.
/// Cost:    destruction is one atomic exchange.
template <typename T>
class pooled {
public:
    using element_type = T;  ///< Of the item.

    pooled() = default;
    pooled(pooled&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
    pooled& operator=(pooled&& other) noexcept {
        pooled(std::move(other)).swap(*this);
        return *this;
    }
    ~pooled() {
        if (node_ != nullptr) detail::pool_of_items<T>::give_back(node_);
    }
    void swap(pooled& other) noexcept { std::swap(node_, other.node_); }

    T& operator*() const noexcept { return node_->value; }
    T* operator->() const noexcept { return &node_->value; }
    T* get() const noexcept { return node_ != nullptr ? &node_->value : nullptr; }
    explicit operator bool() const noexcept { return node_ != nullptr; }

private:
    friend class item_pool<T>;
    explicit pooled(typename detail::pool_of_items<T>::node* one) noexcept : node_(one) {}

    typename detail::pool_of_items<T>::node* node_ = nullptr;
};

/// Provides items whose memory is reused: for large items that a source creates in great numbers.
///
///     am::item_pool<std::vector<float>> frames;
///     auto camera = g.add_source<am::pooled<std::vector<float>>>("camera", [&](auto& out) {
///         for (;;) {
///             am::pooled<std::vector<float>> frame = frames.get();
///             read_into(*frame);
///             out.send(std::move(frame));
///         }
///     });
///
/// Owner:   owns the idle items. It keeps as many as were outstanding at once, which the graph's
///          queues bound, and frees no memory before its end.
/// Threads: get() from one thread at a time; items may be returned from any.
/// Cost:    get() is a few instructions, plus an allocation while the pool is growing.
template <typename T>
class item_pool {
public:
    item_pool() : core_(new detail::pool_of_items<T>) {}
    ~item_pool() { core_->close(); }
    item_pool(const item_pool&) = delete;
    item_pool& operator=(const item_pool&) = delete;

    /// An item as its last user left it, or a new one.
    pooled<T> get() { return pooled<T>(core_->get()); }
    /// Items in existence, idle or outstanding.
    std::size_t size() const noexcept { return core_->size(); }

private:
    detail::pool_of_items<T>* core_;
};

/// Like unique_ptr: a bool, then the item if present.
template <typename T>
requires serializable<T>
struct codec<pooled<T>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 1;

    template <typename Archive>
    static void save(Archive& a, const pooled<T>& x) {
        a(static_cast<bool>(x));
        if (x) a(static_cast<const T&>(*x));
    }
    template <typename Archive>
    static void load(Archive& a, pooled<T>& x) {
        static thread_local item_pool<T> received;
        bool present = false;
        a(present);
        x = pooled<T>();
        if (!present || !a.ok()) return;
        x = received.get();
        a(*x);
    }
};

}  // namespace amalgam
