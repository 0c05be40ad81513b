#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <amalgam/flow/detail/channel.hpp>
#include <amalgam/flow/detail/ring.hpp>
#include <amalgam/flow/node.hpp>
#include <amalgam/rpc/type_name.hpp>

namespace amalgam::detail {

/// Where a node's items come from and go to in this process: at most one of each two.
struct node_ends {
    ring_core* in_here = nullptr;
    channel_in* in_there = nullptr;
    ring_core* out_here = nullptr;
    channel_out* out_there = nullptr;
};

/// A node whose types are forgotten.
///
/// Threads: run() by one ULT at a time.
class node_body {
public:
    virtual ~node_body() = default;

    virtual std::string takes() const = 0;  ///< The type's name; empty for a source.
    virtual std::string gives() const = 0;  ///< The type's name; empty for a sink.
    /// What it gives can travel to another process.
    virtual bool can_be_cut() const noexcept = 0;
    /// A queue for what it gives.
    virtual std::unique_ptr<ring_core> make_ring(std::size_t items, bool across_streams) const = 0;
    /// Everything from start() to end().
    virtual void run(const place& where, const node_ends& ends) = 0;
};

template <typename T>
std::string item_type_name() {
    if constexpr (std::is_void_v<T>) {
        return {};
    } else if constexpr (serializable<T>) {
        return type_name<T>();
    } else {
        return typeid(T).name();
    }
}

template <typename Node>
class typed_body final : public node_body {
    using in = typename Node::input_type;
    using out = typename Node::output_type;

public:
    template <typename... Arguments>
    explicit typed_body(Arguments&&... arguments) : node_(std::forward<Arguments>(arguments)...) {}

    std::string takes() const override { return item_type_name<in>(); }
    std::string gives() const override { return item_type_name<out>(); }
    bool can_be_cut() const noexcept override {
        if constexpr (std::is_void_v<out>) {
            return true;
        } else {
            return serializable<out>;
        }
    }

    std::unique_ptr<ring_core> make_ring(std::size_t items, bool across_streams) const override {
        if constexpr (std::is_void_v<out>) {
            return nullptr;
        } else {
            return std::make_unique<ring<out>>(items, across_streams);
        }
    }

    void run(const place& where, const node_ends& ends) override {
        node_.start(where);
        if constexpr (std::is_void_v<out>) {
            for_each(ends, [this](in&& item) { node_.consume(std::move(item)); });
            node_.end();
        } else {
            outlet<out> outward(ends.out_here, ends.out_there);
            if constexpr (std::is_void_v<in>) {
                node_.generate(outward);
                node_.end();
            } else {
                for_each(ends,
                         [this, &outward](in&& item) { node_.process(std::move(item), outward); });
                node_.end(outward);
            }
        }
    }

private:
    template <typename Use>
    static void for_each(const node_ends& ends, Use&& use) {
        if (ends.in_here != nullptr) {
            auto& from = static_cast<ring<in>&>(*ends.in_here);
            while (in* item = from.front()) {
                use(std::move(*item));
                from.pop();
            }
        } else if constexpr (serializable<in>) {
            decode_all<in>(*ends.in_there, use);
        }
    }

    Node node_;
};

}  // namespace amalgam::detail
