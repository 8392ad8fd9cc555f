# `make demo` and `make test` need nothing but Python 3.11-3.13: they make the virtual environment themselves.
PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
DATA ?=
DATA_DIR := $(if $(DATA),data_dir=$(DATA))
DATA_FLAG := $(if $(DATA),--data $(DATA))
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS_INSTALLED := $(VENV)/.installed_docs
GRIDS := experiments/grids
KILLS ?= 60
VERSIONS ?= 3.11-2.11.0 3.12-2.12.1 3.13-2.15.0

# One thread per process: tests run side by side, and so do the cells of a grid.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint kills nightly versions bench sweep batch-norm stragglers cifar10 convex lecture converged gpu gpu-bench splitting cluster planner scale gallery docs network-lab network-lab-sweep screenshot install clean

demo: install
	$(BIN)/commeff grid $(GRIDS)/demo.yaml --no-report
	$(BIN)/commeff report runs/demo --out results/demo

test: lint
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

lint: install
	$(BIN)/ruff check .
	$(BIN)/mypy

# Random kills of cells, runners, processes, torchrun; `make kills KILLS=60`.
kills: install
	COMMEFF_KILLS=$(KILLS) $(BIN)/python -m pytest -q -m slow tests/laws/test_kills.py

nightly: $(DOCS_INSTALLED)
	$(BIN)/python -m pytest -v -n 2 --dist worksteal -m slow

# The tests with other releases, PYTHON-TORCH each: pythonPYTHON must be there. An environment has 6 GB, and is removed again.
versions:
	@mkdir -p .versions; grep -vE '^(torch|torchvision|setuptools)==' constraints.txt > .versions/constraints.txt; failed=; \
	for v in $(VERSIONS); do echo "Python $${v%-*}, torch $${v#*-}"; new=.versions/$$v/bin/python; rm -rf .versions/$$v; \
	  python$${v%-*} -m venv .versions/$$v && PIP_CONSTRAINT=.versions/constraints.txt $$new -m pip install --quiet \
	    --disable-pip-version-check $(PIP_ARGS) torch==$${v#*-} 'setuptools>=77' -e '.[dev]' && $$new -m pytest -q -n 2 --dist worksteal || failed="$$failed $$v"; \
	  rm -rf .versions/$$v; done; [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

bench: install
	$(BIN)/commeff bench step --csv results/bench_step.csv
	$(BIN)/commeff bench mix --csv results/bench_mix.csv
	$(BIN)/commeff bench processes --csv results/bench_processes.csv
	$(BIN)/commeff bench tensor --csv results/bench/tensor.csv
	$(BIN)/commeff bench shard --csv results/bench/shard.csv
	$(BIN)/commeff bench images --csv results/bench/images.csv
	$(BIN)/commeff bench codecs --csv results/bench/codecs.csv
	$(BIN)/commeff bench store --csv results/bench/store.csv

# The other folders of results/; each skips what it finds finished in runs/.
sweep: install
	$(BIN)/commeff grid $(GRIDS)/demo_sweep.yaml --no-report
	$(BIN)/commeff report runs/demo_sweep --out results/demo_sweep

batch-norm: install
	$(BIN)/python -m commeff.experiments.studies.batch_norm $(DATA_FLAG)

stragglers: install
	$(BIN)/commeff grid $(GRIDS)/stragglers_sweep.yaml --no-report
	$(BIN)/commeff report runs/stragglers_sweep --out results/stragglers/rates
	$(BIN)/commeff grid $(GRIDS)/stragglers.yaml --no-report
	$(BIN)/commeff report runs/stragglers --out results/stragglers

# The compressed methods on CIFAR-10, hours at reduced scale: pieces of at most two hours, each `make cifar10` the next.
cifar10: install
	for t in cifar10_controls cifar10_precision; do $(BIN)/commeff reproduce $$t -j 2 --minutes 40 \
	  --store runs/reproduce/cifar10 --out results/cifar10/$$t $(DATA_DIR) || [ $$? = 3 ] || exit 1; done
	$(BIN)/commeff grid $(GRIDS)/top_k_probes.yaml $(DATA_DIR) --no-report
	$(BIN)/commeff report runs/top_k_probes --out results/cifar10/top_k_probes

# Published tables at full scale, some minutes each; 3 says that a claim fails, which its page explains.
CONVEX := bias_floors choco compressors diana ef21_floor ef21_noise ef21_rate local_steps momentum_bias scaffnew speed_up topologies \
	transient two_way_compression power_sgd periodic_averaging choco_gamma equitopo equitopo_consensus equitopo_tracking random_graphs
convex: install
	for t in $(CONVEX); do $(BIN)/commeff reproduce $$t --out results/convex/$$t $(DATA_DIR) || [ $$? = 3 ] || exit 1; done

# The tables of the lecture: two modelled, one full, two reduced, three hours of one core together; again after an interruption.
LECTURE := gossip_time:full bert_time:full resnet56_gossip:reduced language_gossip:full qsgd_bits:reduced
lecture: install
	for t in $(LECTURE); do name=$${t%:*}; $(BIN)/commeff reproduce $$name --scale $${t#*:} --out results/lecture/$$name \
	  $(DATA_DIR) || [ $$? = 3 ] || exit 1; done

# Networks trained to the end: hours of one core each. Finished runs lie in runs.tar.xz beside each page; again after an interruption.
CONVERGED := top_k_fashion diloco_trend diloco_momentum gossip_fashion five_tasks
converged: install
	for t in $(CONVERGED); do $(BIN)/commeff reproduce $$t --out results/converged/$$t --records results/converged/$$t/runs.tar.xz \
	  $(DATA_DIR) || [ $$? = 3 ] || exit 1; done
	$(BIN)/python -m commeff.experiments.studies.diloco_trend
	$(if $(DATA),COMMEFF_DATA=$(DATA)) $(BIN)/python -m commeff.experiments.studies.step_ratios
	$(BIN)/python -m commeff.experiments.studies.choice

# Full scale of the tables whose cost names a GPU, in pieces of ten minutes on one: again until nothing is left. Before them,
# `make gpu-bench`: benches and laws. Where commeff is not installed: `make gpu GPU_PYTHON=python3`, see docs/reproduce.md.
GPU_TABLES := $(notdir $(basename $(shell grep -lE '"full": ".*GPU' experiments/reproduce/tables/*.py)))
GPU_MINUTES ?= 9
GPU_JOBS ?= 4
GPU_PYTHON ?= $(BIN)/python
GPU_INSTALL := $(if $(filter $(BIN)/python,$(GPU_PYTHON)),install)
gpu-bench: $(GPU_INSTALL)
	$(GPU_PYTHON) -m commeff bench gpu --csv results/bench/gpu.csv
	$(GPU_PYTHON) -m pytest -q -m gpu -n $(GPU_JOBS) tests/laws tests/commeff/training

gpu: $(GPU_INSTALL)
	@left() { for t in $(GPU_TABLES); do [ -f results/gpu/$$t/report.md ] || echo $$t; done; }; next=$$(left | head -n 1); \
	[ -n "$$next" ] || { echo "nothing is left of: $(GPU_TABLES)"; exit 0; }; \
	$(GPU_PYTHON) -m commeff reproduce $$next device=cuda $(DATA_DIR) -j $(GPU_JOBS) --minutes $(GPU_MINUTES) --out results/gpu/$$next; code=$$?; \
	[ $$code != 1 ] || rm -f results/gpu/$$next/report.md; \
	echo "left:" $$(left); [ $$code = 3 ] || exit $$code

splitting: install
	$(BIN)/python -m commeff.experiments.studies.splitting
	$(BIN)/python -m commeff.experiments.studies.splitting.four_axes $(DATA_FLAG)
	$(BIN)/python -m commeff.experiments.studies.splitting.on_ranks $(DATA_FLAG)

cluster: install
	$(BIN)/python -m commeff.experiments.studies.networks.report

planner: install
	$(BIN)/python -m commeff.experiments.studies.planner tables
	$(BIN)/python -m commeff.experiments.studies.planner search
	$(BIN)/python -m commeff.experiments.studies.planner study
	$(BIN)/python -m commeff.experiments.studies.planner bandwidth

# The first wants a quiet machine; the second is modelled.
scale: install
	$(BIN)/commeff bench comm --nproc 2 --csv results/scale/comm.csv --profile results/scale/profile.yaml
	$(BIN)/commeff scale --out results/scale

# The commands of docs/gallery.md, one after the other.
gallery: install
	PATH="$(abspath $(BIN)):$$PATH" sh -ec "$$(sed -n '/^```sh/,/^```$$/{/^```/!p}' docs/gallery.md)"

# Needs root, and a machine that does nothing else.
network-lab: install
	$(BIN)/commeff lab bench --csv results/network_lab/bench.csv
	$(BIN)/commeff lab run experiments/studies/lab/network_lab.yaml
	$(BIN)/commeff lab report runs/network_lab --out results/network_lab

# The learning rates of network_lab.yaml.
network-lab-sweep: install
	$(BIN)/commeff grid experiments/studies/lab/network_lab_sweep.yaml

# The documentation as a site that opens offline, site/index.html; warnings are errors.
docs: $(DOCS_INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# Of the docs; wants a Chromium.
SHOT := chromium --headless --no-sandbox --hide-scrollbars
SMALLER := $(BIN)/python -c "import sys; from PIL import Image; [Image.open(f).convert('RGB').quantize(128, 1).save(f, optimize=True) for f in sys.argv[1:]]"

# The report of a grid in which one method explodes and one learns nothing, on a laptop and a telephone.
screenshot:
	$(BIN)/commeff grid $(GRIDS)/failures.yaml --no-report
	$(BIN)/commeff report runs/failures
	$(SHOT) --window-size=1366,2010 --screenshot=docs/pictures/report_laptop.png file://$(CURDIR)/runs/failures/report/report.html
	$(SHOT) --window-size=390,1660 --screenshot=docs/pictures/report_phone.png file://$(CURDIR)/runs/failures/report/report.html
	$(SMALLER) docs/pictures/report_laptop.png docs/pictures/report_phone.png

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' \
		|| { echo "commeff needs Python 3.11, 3.12 or 3.13: make PYTHON=/path/to/python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) .versions site build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
