#include "conformance/operation.hpp"

#include <utility>

#include <gtest/gtest.h>

#include "conformance/node.hpp"

namespace amalgam::conformance {

namespace {
std::uint64_t* old_of(const std::vector<mutable_bytes>& into) {
    return into.empty() ? nullptr : reinterpret_cast<std::uint64_t*>(into.front().data());
}
}  // namespace

std::string_view name(op_kind kind) noexcept {
    switch (kind) {
        case op_kind::send:
            return "send";
        case op_kind::send_expected:
            return "send_expected";
        case op_kind::receive:
            return "receive";
        case op_kind::put:
            return "put";
        case op_kind::get:
            return "get";
        case op_kind::put_notify:
            return "put_notify";
        case op_kind::fetch_add:
            return "fetch_add";
        case op_kind::compare_swap:
            return "compare_swap";
    }
    return "?";
}

std::span<const op_kind> kinds_of(const port& at) noexcept {
    constexpr std::size_t newer = 3;
    const std::span all(every_kind);
    return at.can().atomics == atomic_mode::none ? all.first(all.size() - newer) : all;
}

std::size_t request::bytes() const noexcept {
    std::size_t sum = 0;
    for (const_bytes piece : from)
        sum += piece.size();
    for (mutable_bytes piece : into)
        sum += piece.size();
    return sum;
}

operation::operation(node& at, request what)
    : completion(&operation::ran), at_(at), what_(std::move(what)) {}

posted operation::post() {
    port& end = at_.end();
    node::callbacks_forbidden here(at_);
    switch (what_.kind) {
        case op_kind::send:
            how_ = end.post_send(what_.peer, what_.tag, what_.from, *this);
            break;
        case op_kind::send_expected:
            how_ = end.post_send_expected(what_.peer, what_.tag, what_.from, *this);
            break;
        case op_kind::receive:
            how_ = end.post_receive(what_.peer, what_.tag, what_.into.front(), *this);
            break;
        case op_kind::put:
            how_ = end.post_put(what_.peer, what_.from, what_.key, what_.offset, *this);
            break;
        case op_kind::get:
            how_ = end.post_get(what_.peer, what_.into, what_.key, what_.offset, *this);
            break;
        case op_kind::put_notify:
            how_ = end.post_put_notify(what_.peer, what_.from, what_.key, what_.offset, what_.tag,
                                       *this);
            break;
        case op_kind::fetch_add:
            how_ = end.post_fetch_add(what_.peer, what_.key, what_.offset, what_.tag,
                                      old_of(what_.into), *this);
            break;
        case op_kind::compare_swap:
            how_ = end.post_compare_swap(what_.peer, what_.key, what_.offset, what_.tag,
                                         what_.desired, old_of(what_.into), *this);
            break;
    }
    if (how_ == posted::done) bytes_ = what_.bytes();
    if (how_ == posted::pending) at_.took(*this);
    return how_;
}

void operation::ran(completion& self, status what, std::size_t bytes) noexcept {
    auto& op = static_cast<operation&>(self);
    ++op.runs_;
    op.ended_ = what;
    op.bytes_ = bytes;
    if (op.how_ != posted::pending)
        ADD_FAILURE() << "a completion ran of a " << name(op.what_.kind) << " that was not pending";
    if (op.runs_ > 1)
        ADD_FAILURE() << "a completion of a " << name(op.what_.kind) << " ran " << op.runs_
                      << " times";
    if (!what.ok() && bytes != 0)
        ADD_FAILURE() << "a failed " << name(op.what_.kind) << " claims " << bytes << " bytes";
    op.at_.completed(op);
    if (op.then) op.then(op);
}

}  // namespace amalgam::conformance
