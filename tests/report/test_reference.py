"""`docs/ir.md`."""

from inline_snapshot import external_file

from flowrl.report.reference import op_classes, reference


def test_the_reference_is_in_step_with_the_ops_and_with_what_prints():
    """`pytest --inline-snapshot=fix` writes it anew."""
    assert reference() == external_file("../../docs/ir.md", format=".txt")


def test_every_op_is_documented():
    text = reference()

    assert all(f"| `{name.replace('tensor_op', 'tensor op')}` |" in text for name in op_classes())
