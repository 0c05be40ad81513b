#include <algorithm>

#include "network.hpp"

namespace ff {
namespace {

bool sends_nothing(const void* item) {
    return item == FF_GO_ON || item == FF_GO_OUT || item == FF_EOS_NOFREEZE || item == FF_FLUSH ||
           item == FF_BLK || item == FF_NBLK;
}
bool ends(const void* item) {
    return item == nullptr || item == FF_EOS || item == FF_EOSW;
}

}  // namespace

ff_comb::ff_comb(ff_node* first, ff_node* second, bool cleanup_first, bool cleanup_second) {
    set(first, second, cleanup_first, cleanup_second);
}

ff_comb::ff_comb(const ff_comb& other)
    : ff_minode(other), left_(other.left_), right_(other.right_) {
    owned_.swap(const_cast<ff_comb&>(other).owned_);
}

ff_comb::~ff_comb() {
    end_threads();
    for (ff_node* each : owned_)
        delete each;
}

void ff_comb::set(ff_node* first, ff_node* second, bool cleanup_first, bool cleanup_second) {
    left_ = first;
    right_ = second;
    if (cleanup_first && first != nullptr) owned_.push_back(first);
    if (cleanup_second && second != nullptr) owned_.push_back(second);
    for (const ff_node* each : {first, second})
        if (each == nullptr || each->isFarm() || each->isAll2All() || each->isPipe())
            error(
                "a combination of a farm, pipeline, all-to-all or null pointer, expected nodes or "
                "combinations of nodes\n");
}

ff_node* ff_comb::getFirst() const {
    return left_ != nullptr && left_->isComp() ? static_cast<ff_comb*>(left_)->getFirst() : left_;
}
ff_node* ff_comb::getLast() const {
    return right_ != nullptr && right_->isComp() ? static_cast<ff_comb*>(right_)->getLast()
                                                 : right_;
}

ff_node* ff_comb::replace_first(ff_node* with, bool cleanup, bool forget) {
    if (left_->isComp()) return nullptr;
    ff_node* const old = left_;
    detail::outdate(*old);
    if (forget) owned_.erase(std::remove(owned_.begin(), owned_.end(), old), owned_.end());
    left_ = with;
    if (cleanup) owned_.push_back(with);
    return old;
}
ff_node* ff_comb::replace_last(ff_node* with, bool cleanup, bool forget) {
    if (right_->isComp()) return nullptr;
    ff_node* const old = right_;
    detail::outdate(*old);
    if (forget) owned_.erase(std::remove(owned_.begin(), owned_.end(), old), owned_.end());
    right_ = with;
    if (cleanup) owned_.push_back(with);
    return old;
}
bool ff_comb::change_node(ff_node* old, ff_node* with, bool cleanup, bool forget) {
    if (left_ == old) return replace_first(with, cleanup, forget) != nullptr;
    if (right_ == old) return replace_last(with, cleanup, forget) != nullptr;
    return false;
}
// The node that goes stays owned, and lives as long as this: nobody else may still name it.
bool ff_comb::changeFirst(ff_node* with, bool cleanup) {
    if (left_->isComp()) return static_cast<ff_comb*>(left_)->changeFirst(with, cleanup);
    return replace_first(with, cleanup, false) != nullptr;
}
bool ff_comb::changeLast(ff_node* with, bool cleanup) {
    if (right_->isComp()) return static_cast<ff_comb*>(right_)->changeLast(with, cleanup);
    return replace_last(with, cleanup, false) != nullptr;
}

void ff_comb::get_out_nodes(svector<ff_node*>& nodes) {
    getLast()->get_out_nodes(nodes);
}

void ff_comb::set_id(ssize_t id) {
    ff_node::set_id(id);
    detail::access::id(*left_, id);
    detail::access::id(*right_, id);
}
void ff_comb::input_active(bool on) {
    ff_node::input_active(on);
}

void ff_comb::chain(std::vector<ff_node*>& nodes) const {
    for (ff_node* each : {left_, right_}) {
        if (each->isComp())
            static_cast<ff_comb*>(each)->chain(nodes);
        else
            nodes.push_back(each);
    }
}

void ff_comb::connect() {
    chain_.clear();
    chain(chain_);
    links_.assign(chain_.size(), {});
    for (std::size_t at = 0; at + 1 < chain_.size(); ++at) {
        links_[at] = {this, at + 1};
        detail::access::on_send(*chain_[at], &ff_comb::received, &links_[at]);
    }
}

bool ff_comb::received(void* item, int, unsigned long, unsigned long, void* argument) {
    const auto* to = static_cast<link*>(argument);
    if (ends(item)) {
        to->whole->tell_end(to->next, item);  // Its other inputs may still bring items.
    } else if (!sends_nothing(item)) {
        to->whole->pass(to->next, item);
    }
    return true;
}

int ff_comb::svc_init() {
    ended_ = false;
    left_with_ = nullptr;
    inputs_left_ = 1;
    if (const auto& threads = detail::access::threads(*this); !threads.empty()) {
        inputs_left_ = std::max<std::size_t>(threads.front()->in.inputs.size(), 1);
        starts_loop_ = !threads.front()->in.inputs.empty();
    }
    for (ff_node* each : chain_) {
        const int result = each->svc_init();
        if (result < 0) return result;
    }
    return 0;
}
void ff_comb::svc_end() {
    for (ff_node* each : chain_)
        each->svc_end();
}
void ff_comb::eosnotify(ssize_t id) {
    chain_.front()->eosnotify(id);
    if (inputs_left_ == 0 || --inputs_left_ != 0) return;
    for (std::size_t at = 1; at < chain_.size(); ++at)
        chain_[at]->eosnotify();
}

void* ff_comb::svc(void* task) {
    void* const result = chain_.front()->svc(task);
    if (result == FF_GO_OUT || result == FF_EOS_NOFREEZE) return result;
    // The first call of a loop is for whoever begins it, as in FastFlow.
    if (task == nullptr && result == nullptr && starts_loop_) {
        pass(1, nullptr);
        return answer();
    }
    if (ends(result)) {
        end_from(1, result);
        return FF_GO_OUT;
    }
    if (!sends_nothing(result)) pass(1, result);
    return answer();
}

/// What svc() returns after its nodes were called.
void* ff_comb::answer() const {
    if (left_with_ != nullptr) return left_with_;
    return ended_ ? FF_GO_OUT : FF_GO_ON;
}

bool ff_comb::pass(std::size_t at, void* item) {
    if (ended_ || left_with_ != nullptr) return false;
    void* const result = chain_[at]->svc(item);
    if (result == FF_FLUSH) detail::access::threads(*this).front()->flush();
    if (result == FF_GO_OUT || result == FF_EOS_NOFREEZE) {
        left_with_ = result;
        return false;
    }
    if (sends_nothing(result)) return true;
    if (item == nullptr && result == nullptr && at + 1 < chain_.size())
        return pass(at + 1, nullptr);
    if (ends(result)) {
        end_from(at + 1, result);
        return false;
    }
    if (at + 1 < chain_.size()) return pass(at + 1, result);
    chain_[at]->ff_send_out(result);
    return true;
}

void ff_comb::end_from(std::size_t at, void* mark) {
    if (ended_) return;
    ended_ = true;
    tell_end(at, mark);
}
void ff_comb::tell_end(std::size_t at, void* mark) {
    for (; at < chain_.size(); ++at)
        chain_[at]->eosnotify();
    const auto& threads = detail::access::threads(*this);
    if (!threads.empty()) threads.front()->emit_end(mark == nullptr ? FF_EOS : mark);
}

}  // namespace ff
