#pragma once

#include <memory>
#include <type_traits>

#include <ff/farm_block.hpp>
#include <ff/multinode.hpp>
#include <ff/pipeline_block.hpp>

namespace ff {

/// Nodes that run one after another on one thread: what the first sends is an item of the second.
/// It has the inputs of its first node and the outputs of its last. A combination is a node of
/// another one, too.
///
/// Owner:   the program owns the nodes, but for those passed with `cleanup` or by value.
/// Threads, failure: as ff_node.
class ff_comb : public ff_minode {
public:
    ff_comb(ff_node* first, ff_node* second, bool cleanup_first = false,
            bool cleanup_second = false);
    template <typename First, typename Second,
              typename = std::enable_if_t<std::is_base_of_v<ff_node, std::remove_const_t<First>> &&
                                          std::is_base_of_v<ff_node, std::remove_const_t<Second>>>>
    ff_comb(First& first, Second& second) {
        add_node(first, second);
    }
    /// Takes over what `other` would have deleted.
    ff_comb(const ff_comb& other);
    ~ff_comb() override;

    bool isComp() const override { return true; }
    bool isMultiInput() const override {
        const ff_node* first = getFirst();
        return first != nullptr && first->isMultiInput();
    }
    bool isMultiOutput() const override {
        const ff_node* last = getLast();
        return last != nullptr && last->isMultiOutput();
    }
    ff_node* getFirst() const;
    ff_node* getLast() const;
    ff_node* getLeft() const { return left_; }
    ff_node* getRight() const { return right_; }
    bool change_node(ff_node* old, ff_node* with, bool cleanup = false,
                     bool forget = false) override;
    ff_node* replace_first(ff_node* with, bool cleanup = false, bool forget = true);
    ff_node* replace_last(ff_node* with, bool cleanup = false, bool forget = true);
    bool changeFirst(ff_node* with, bool cleanup = false);
    bool changeLast(ff_node* with, bool cleanup = false);
    void set_scheduling_ondemand(int entries = 1) override {
        getLast()->set_scheduling_ondemand(entries);
    }
    int ondemand_buffer() const override { return getLast()->ondemand_buffer(); }
    void get_out_nodes(svector<ff_node*>& nodes) override;

    int svc_init() override;
    void* svc(void* task) override;
    void svc_end() override;
    void eosnotify(ssize_t id = -1) override;

    using ff_node::run;
    using ff_node::run_and_wait_end;
    using ff_node::wait;

protected:
    ff_comb() = default;
    void set_id(ssize_t id) override;
    void input_active(bool on) override;
    template <typename First, typename Second>
    void add_node(First& first, Second& second) {
        const bool copy_first = std::is_const_v<First>;
        const bool copy_second = std::is_const_v<Second>;
        set(pick(first), pick(second), copy_first, copy_second);
    }
    template <typename First, typename Second>
    friend const ff_comb combine_nodes(First& first, Second& second);
    template <typename First, typename Second>
    friend std::unique_ptr<ff_node> unique_combine_nodes(First& first, Second& second);

private:
    friend struct detail::access;
    template <typename T>
    static ff_node* pick(T& node) {
        if constexpr (std::is_const_v<T>)
            return new std::remove_const_t<T>(node);
        else
            return &node;
    }
    void set(ff_node* first, ff_node* second, bool cleanup_first, bool cleanup_second);
    void chain(std::vector<ff_node*>& nodes) const;
    /// `item` reaches the node at `at` of the chain; false: that node has ended the stream.
    bool pass(std::size_t at, void* item);
    void end_from(std::size_t at, void* mark);
    /// The nodes from `at` on, and those after this, are at the end of the stream.
    void tell_end(std::size_t at, void* mark);
    /// What a node of the chain sends.
    static bool received(void* item, int, unsigned long, unsigned long, void* link);
    void connect();
    void* answer() const;

    struct link {
        ff_comb* whole;
        std::size_t next;
    };
    ff_node* left_ = nullptr;
    ff_node* right_ = nullptr;
    svector<ff_node*> owned_;
    std::vector<ff_node*> chain_;  // while it runs
    std::vector<link> links_;
    std::size_t inputs_left_ = 0;
    bool starts_loop_ = false;  // called with nothing first, though it has inputs
    bool ended_ = false;
    void* left_with_ = nullptr;  // GO_OUT or EOS_NOFREEZE of a node after the first
};

/// A combination whose types fit: In -> Middle -> Out.
template <typename In, typename Middle, typename Out>
struct ff_comb_t : ff_comb {
    using IN_t = In;
    using T_t = Middle;
    using OUT_t = Out;
    using in_type = In;
    using out_type = Out;
    template <typename First, typename Second>
    ff_comb_t(First* first, Second* second, bool cleanup_first = false, bool cleanup_second = false)
        : ff_comb(first, second, cleanup_first, cleanup_second) {
        static_assert(std::is_same_v<typename First::in_type, In> &&
                          std::is_same_v<typename First::out_type, Middle> &&
                          std::is_same_v<typename Second::in_type, Middle> &&
                          std::is_same_v<typename Second::out_type, Out>,
                      "the nodes' types must be In -> Middle -> Out");
    }
};

template <typename First, typename Second>
ff_comb_t(First*, Second*, bool = false, bool = false)
    -> ff_comb_t<typename First::in_type, typename First::out_type, typename Second::out_type>;

/// Const nodes are copied, others stay the caller's.
template <typename First, typename Second>
const ff_comb combine_nodes(First& first, Second& second) {
    ff_comb made;
    made.add_node(first, second);
    return made;
}
template <typename First, typename Second>
std::unique_ptr<ff_node> unique_combine_nodes(First& first, Second& second) {
    auto made = std::unique_ptr<ff_comb>(new ff_comb);
    made->add_node(first, second);
    return made;
}

}  // namespace ff
