// Calls lambdas on workers. A wrapper owns the workers, and brings exceptions back to the caller.
#include <coreline.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

class Workers {
public:
    Workers() {
        coreline_workers_t* workers = nullptr;
        check(coreline_workers_create(nullptr, &workers));
        workers_.reset(workers);
    }

    std::vector<std::uint32_t> cpus() const {
        std::size_t count = 0;
        check(coreline_workers_cpus(workers_.get(), nullptr, 0, &count));
        std::vector<std::uint32_t> cpus(count);
        check(coreline_workers_cpus(workers_.get(), cpus.data(), cpus.size(), &count));
        return cpus;
    }

    // Runs a function on the worker of a CPU, and waits. The function may borrow from the caller.
    template <class F>
    void call(std::uint32_t cpu, F&& function) const {
        Call<std::remove_reference_t<F>> call{&function, nullptr};
        check(coreline_workers_call(workers_.get(), cpu, call.run, &call));
        if (call.thrown) std::rethrow_exception(call.thrown);
    }

private:
    // No exception may leave a function that a worker runs: it would end the process.
    template <class F>
    struct Call {
        F* function;
        std::exception_ptr thrown;

        static void run(void* argument) {
            auto* call = static_cast<Call*>(argument);
            try {
                (*call->function)();
            } catch (...) {
                call->thrown = std::current_exception();
            }
        }
    };

    struct Destroy {
        void operator()(coreline_workers_t* workers) const { coreline_workers_destroy(workers); }
    };

    static void check(coreline_code_t code) {
        if (code != CORELINE_OK) throw std::runtime_error(coreline_strerror(code));
    }

    std::unique_ptr<coreline_workers_t, Destroy> workers_;
};

int main() {
    const Workers workers;
    const std::vector<std::uint32_t> cpus = workers.cpus();
    std::string names;
    for (const std::uint32_t cpu : cpus)
        workers.call(cpu, [&] { names += "worker " + std::to_string(cpu) + "\n"; });
    std::fputs(names.c_str(), stdout);
    try {
        workers.call(cpus.front(), [] { throw std::runtime_error("from a worker"); });
    } catch (const std::runtime_error& error) {
        std::printf("caught: %s\n", error.what());
        return 0;
    }
    return 1;
}
