#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include <amalgam/rpc/codec.hpp>

namespace amalgam {

template <typename T>
class item_pool;

namespace detail {

/// What an item_pool and the items that are out share. It goes with the last of them.
template <typename T>
class pool_of_items {
public:
    struct node {
        explicit node(pool_of_items& of) : home(of) {}
        T value{};
        node* next = nullptr;
        pool_of_items& home;
    };

    /// By the pool's owner only.
    node* get() {
        if (free_ == nullptr) free_ = returned_.exchange(nullptr, std::memory_order_acquire);
        if (free_ == nullptr) {
            auto made = std::make_unique<node>(*this);
            owners_.fetch_add(1, std::memory_order_relaxed);
            return made.release();
        }
        return std::exchange(free_, free_->next);
    }
    /// By anybody.
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
    /// The owner goes: items that are out are deleted when they come back.
    void close() noexcept {
        leave(1 + delete_all(free_) +
              delete_all(returned_.exchange(closed(), std::memory_order_acq_rel)));
    }
    /// How many there are, here or out.
    std::size_t size() const noexcept { return owners_.load(std::memory_order_relaxed) - 1; }

private:
    /// On top of what was returned once the owner has gone: it is never read.
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
    std::atomic<std::size_t> owners_{1};  ///< The pool, and each of its items.
};

}  // namespace detail

/// An item that goes back to its pool when it is not needed any more, as it is: what its members
/// have allocated is there for the next. Otherwise like a unique_ptr.
///
/// To another process it travels as a T, into an item of a pool that the receiving thread has.
///
/// Owner:   owns the item; may outlive the pool.
/// Threads: as any value; it may end on another thread than the pool's.
/// Cost:    its end is one atomic exchange.
template <typename T>
class pooled {
public:
    using element_type = T;

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

/// Gives items whose memory is used again: for large ones that a source makes in great numbers.
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
/// Owner:   owns what is not out. It holds as many as were out at once, which the queues of a
///          graph bound, and gives no memory back before its end.
/// Threads: get() by one at a time; items come back from any.
/// Cost:    get() is a few instructions, and an allocation as long as there are too few.
template <typename T>
class item_pool {
public:
    item_pool() : core_(new detail::pool_of_items<T>) {}
    ~item_pool() { core_->close(); }
    item_pool(const item_pool&) = delete;
    item_pool& operator=(const item_pool&) = delete;

    /// One that was used before, as it was left, or a new one.
    pooled<T> get() { return pooled<T>(core_->get()); }
    /// How many there are, here or out.
    std::size_t size() const noexcept { return core_->size(); }

private:
    detail::pool_of_items<T>* core_;
};

/// As a unique_ptr: a bool, then the item if there is one.
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
