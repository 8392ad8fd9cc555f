"""From words on the command line to objects: composition, schema, plug-ins, building."""
